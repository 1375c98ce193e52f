"""The live page: a board of one journal for aiohttp.

`feed` follows the journal once for all pages, `known` finds what has changed, `log` keeps it for pages that come late,
`access` decides who is answered, `actions` changes items, and `app` joins them.
"""
