"""Runs every flow of a folder, each in a process of its own, and answers for them over HTTP; `headwater serve DIR`.

settings   what can be chosen for a flow, in a file beside it; folder is which flows there are
lifecycle  when a flow is started, stopped, and started again; pure
supervision  does what lifecycles decide: starts processes, hears what they say
service    the same flows, for whoever asks
served_flow  a flow, with what is known of it; history has its samples
subscription  what who follows flows is told; families is what Prometheus is told
child      a process of a flow, as the server sees it; lane is what runs in it
warm_process  processes that have made their flows before they are to run; priority is theirs until then
home       the state folder: the lock, the token, where the server listens; known to `headwater status`
watched_run  one run that was started by hand, answered for in the same way: see `backend`; usage is what a process takes
query      asks the next records of a step a query, by trial in a process of its own
routes     what can be asked for; openapi describes it, http serves it, and client is the other end
notify     what systemd is told
"""

__all__: list[str] = []
