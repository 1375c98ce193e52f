"""The live page: a board of one journal for aiohttp.

`feed` follows the journal once for all pages, `log` keeps what has changed for pages that come late, `status` is what
they show besides the rows, `access` decides who is answered, `actions` changes items, and `app` joins them.
"""
