"""The command line `agentjobs`; needs the extra `cli`.

`main` names the module of each command, in which its options stand beside what it does; `_input` reads what is sent,
`_output` writes what is shown, and only `screen` and `columns` in it know rich.
"""
