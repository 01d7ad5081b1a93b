"""What several screens draw: charts, tables, pages of lines, dialogs, texts cut and wrapped to cells."""
