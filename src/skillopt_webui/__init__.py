"""The web page: configure, launch, watch and understand runs. `skillopt ui` serves it on this machine."""
