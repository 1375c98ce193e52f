"""The command line `agentjobs`; needs the extra `cli`.

click is behind `commands`, rich behind `screen`; what the commands do is in `actions`.
"""
