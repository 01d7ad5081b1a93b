"""What the Monitor screen shows: samples become lines here, without a terminal."""
