"""The live page: a board of one journal for aiohttp.

`feed` reads the journal once for all pages, `changes` finds what has changed, `running_figures` counts the rows,
`status` is what else pages show, `access` decides who is answered, `actions` changes items, and `app` joins them.
"""
