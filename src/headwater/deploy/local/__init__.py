"""The sites of a net on one machine, for trials: what `headwater up` gives each of them.

namespace  a network of its own for a site; goes by itself with whoever uses it
wires      when packets between sites arrive: latency and bandwidth as the net has them (pure)
carrier    carries them, by a thread
packets    the answer that ends a connection (pure)
relay      the way from a namespace to the coordinator, and to servers of this machine
cuts       links that are cut for a while: who asks for it, and who does it
quota      a bound on the cores that a site takes
emulation  all of these for the sites of a net, as far as this machine allows
"""
