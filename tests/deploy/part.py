"""One end of a bridge in a process of its own, with checkpoints: to be killed.

Run as: part.py FOLDER ROLE PORT CERTIFICATES.
"""

import sys
import time
from pathlib import Path

from headwater import Flow, engine, io
from headwater.data.schema import Schema
from headwater.deploy import Identity, Inlet, Links, Outlet

SCHEMA = Schema.of({"n": int})


def main(folder, role, port, certificates):
    hurry = folder / "hurry"

    def slowly(record):
        if record["n"] % 50 == 0 and not hurry.exists():
            time.sleep(0.05)
        return record

    flow = Flow(role)
    if role == "sender":
        links = Links(client=Identity.of(certificates, "barn").client())
        outlet = Outlet("numbers", links, ("127.0.0.1", port), peer="cloud", linger_s=60)
        rows = [{"n": n} for n in range(4000)]
        flow.read("numbers", io.Items(rows, SCHEMA)).map("slowly", slowly).write("out", outlet)
    else:
        links = Links(("127.0.0.1", port), server=Identity.of(certificates, "cloud").server())
        flow.read("numbers", Inlet("numbers", SCHEMA, links)).write("out", io.JsonLines(folder / "out.jsonl"))
    engine.run(flow, checkpoint=folder / role, every="100 ms", chunk=20)
    links.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
