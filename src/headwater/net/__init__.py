"""Where steps could run: devices in zones, their capacities, energy and cost, and the latency between them.

device.py  classes of devices        wan.py    latency between zones        net.py    the net itself
generate.py  nets of any size        files.py  TOML, JSON and a binary form  table.py  their common shape
"""

from headwater.errors import NetError
from headwater.net.device import AZURE_D2, PI_2, PI_2_BATTERY, PI_3, RYZEN, DeviceClass
from headwater.net.files import read, write
from headwater.net.generate import VEITH_SIZES, city, cloud_edge, pis_and_vm
from headwater.net.net import Net
from headwater.net.wan import Coordinates, Gateways, Held, Matrix, Wan, Without

__all__ = [
    "AZURE_D2",
    "PI_2",
    "PI_2_BATTERY",
    "PI_3",
    "RYZEN",
    "VEITH_SIZES",
    "Coordinates",
    "DeviceClass",
    "Gateways",
    "Held",
    "Matrix",
    "Net",
    "NetError",
    "Wan",
    "Without",
    "city",
    "cloud_edge",
    "pis_and_vm",
    "read",
    "write",
]
