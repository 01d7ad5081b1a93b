"""Load on an LLM server: a request's bytes with the time of each read, loads, and what the answers say.

In: a launch with the server's address and a load. Out: messages of the channel. The parts, from the bottom:
`answer` reads a recorded answer, `client` sends requests and records, `request` sends one alone, `prompts`
writes them, `server` says to whom, `planned_load` is what a plan asks for, `load` what is offered and what
came of it, `offering` offers it, `search` says which rate to try next, `reporting` sends messages,
`load_launch` does one launch.
"""
