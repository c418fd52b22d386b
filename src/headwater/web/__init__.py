"""What people and other programs see of flows over HTTP; binds to loopback unless told otherwise.

The dashboard runs in a process of its own and knows no more than the API of `headwater serve` tells everybody. It needs the
extra `web`, and nothing here is imported before somebody asks for it.

process     starts the dashboard as a process, and ends it; settings is what that is told
server      the process: pages behind a guard (who may look, who may act, login), with a client of the API
reading     what a sample says of each step, and which of them is the bottleneck; figures writes numbers as people read them
layout      where steps stand in the drawing; graph draws it, frame is what all pages share, theme their colours
table       rows of text; editor is for the text of a query, range for a moment of the past; series is all of it, as charts
site_words     what a coordinator says of sites, in words; map is where they stand, netmap draws them, site_panel acts on one
plan_words  what the account of a placement says, in words; board is steps on devices, to be dragged
pages/      one file for each page
prometheus  metrics in the form that Prometheus reads; needs nothing of the above
"""

__all__: list[str] = []
