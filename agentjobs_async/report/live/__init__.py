"""The live page: a board of one journal for aiohttp.

`feed` reads the journal once for all pages, `changes` finds what has changed, `status` is what pages show besides the
rows, `access` decides who is answered, `actions` changes items, and `app` joins them.
"""
