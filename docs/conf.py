"""How Sphinx builds the pages: `.ci/run docs`."""

project = "agentjobs-async"
copyright = "the agentjobs-async maintainers"  # noqa: A001 - the name that Sphinx reads
html_theme = "furo"
html_title = project
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
html_extra_path = ["llms.txt"]

myst_heading_anchors = 3  # levels: links lead to headings, as on code hosts

autodoc_default_options = {"members": True, "inherited-members": "Exception,str", "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_use_rtype = False

nitpick_ignore_regex = [
    ("py:.*", r"(?!agentjobs_async\.).*"),  # documented elsewhere, and the build fetches nothing
    ("py:.*", r"agentjobs_async\.(.*\.)?_\w+(\..*)?"),  # a private name, or a name in a private module
    ("py:class", r"agentjobs_async\.(\w+\.)*([A-Z]|\w+_(co|contra))"),  # type variables
    ("py:class", r"agentjobs_async\.batch\.runner\.RunSettings"),  # an argument of `Batch`, which `run_batch` makes
]
