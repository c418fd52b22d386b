"""Makes the flow that the process of a part runs, at its site; the file that stands for a part there calls it."""

from __future__ import annotations

from pathlib import Path

from headwater.cli.locate import find_flow
from headwater.cli.rewire import rewire
from headwater.deploy.bridge_ends import BridgeEnds
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.cut import Cut
from headwater.deploy.part import Part, file_of, read_part
from headwater.deploy.site.folder import SiteFolder
from headwater.flow.flow import Flow


def flow_of(file: str) -> Flow:
    """Return a part's flow, with bridges at its ends, if the coordinator has signed it."""
    site = SiteFolder.around(Path(file))
    folder = site.sources(Path(file).stem)
    identity = site.identity()
    part = read_part(folder, site.name, identity.authority)
    whole = whole_flow(part, folder)
    ends = BridgeEnds(part, folder, identity, site.listen, site.uplink)
    part_flow = Cut(whole, part.sites).part(part.site, ends)
    if site.lanes is None or part.promise is not None:
        ends.open()  # else once lanes are forked, which is not safe beside the thread of the connections
    return part_flow


def flow_deployed(deployment: Deployment, folder: Path) -> Flow:
    """Return a flow that is deployed, imported from files that are written into a folder."""
    for path, content in deployment.files.items():
        file_of(folder, path).parent.mkdir(parents=True, exist_ok=True)
        file_of(folder, path).write_bytes(content)
    return whole_flow(deployment.part(deployment.needed[0]), folder)


def whole_flow(part: Part, folder: Path) -> Flow:
    """Return the flow that a part is of, as it would run on one engine."""
    path, colon, name = part.flow.rpartition(":")
    at = path or part.flow
    if at in part.files:
        flow = find_flow(f"{file_of(folder, at)}{colon}{name}" if path else str(file_of(folder, at)))
    else:
        flow = find_flow(part.flow)
    output = None if part.output is None else Path(part.output)
    return rewire(flow, inputs=part.inputs, output=output, rate=part.rate, may_come=True, loop=False)
