"""A flow and a net to plan with, and plans of them as `headwater plan --web` has them."""

from headwater.cli.question import question_of
from headwater.deploy.api.plans import Plans
from headwater.flow.profile import Profile, StepProfile
from headwater.place import Budget, Constraints

#: the reference of the flow
FLOW = "tanks"
#: what tries to be a script, as the name of a step
HOSTILE = "<script>window.hacked = 1</script>"
_FLOW = f"""
from headwater import Flow, col, io

flow = Flow("tanks")
levels = flow.read("levels", io.Items([{{"n": n, "height": float(n)}} for n in range(10)]))
means = levels.select("means", n=col.n, height=col.height / 2)
means.filter("{HOSTILE}", col.height > 1).write("archive", io.Discard())
"""
_NET = """
name = "farm"
[classes.post]
cpu_ips = 1e8
access_bps = 1e8
[classes.edge]
cpu_ips = 1e9
access_bps = 1e8
price_per_hour = 0.25
[classes.rented]
cpu_ips = 4e9
access_bps = 1e9
price_per_hour = 0.1
cloud = true
[wan]
kind = "coordinates"
base_s = 0.004
s_per_unit = 0.001
[[zones]]
name = "barn"
x = 0
y = 0
devices = [{class = "post", sensors = ["levels"]}]
[[zones]]
name = "shed"
x = 1
y = 2
devices = [{class = "edge"}]
[[zones]]
name = "cloud"
x = 60
y = 20
devices = [{class = "rented"}]
"""


def write_farm(folder):
    """Write a flow whose second step is too much for the post that its source stands at; a net; what steps cost."""
    (folder / "tanks.py").write_text(_FLOW)
    (folder / "farm.toml").write_text(_NET)
    shape = {"bytes_in": 32.0, "bytes_out": 32.0}
    steps = {name: StepProfile(time_s=1e-6, **shape) for name in ("levels", HOSTILE, "archive")}
    steps["means"] = StepProfile(time_s=2e-4, **shape)
    Profile("tanks", "edge", steps).write(folder / "profile.json")


def placed(folder, deployed):
    """Plans of the flow on the net; what is deployed is noted."""
    question = question_of([str(folder / "tanks.py")], ["1000"], [folder / "profile.json"], None, "engine", None)

    def deploy(plan):
        deployed.append(plan)
        return {"says": "it runs"}

    return Plans({FLOW: question}, {"farm": folder / "farm.toml"}, Constraints(), Budget(time_s=5.0), deploy)
