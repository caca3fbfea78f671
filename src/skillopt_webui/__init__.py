"""The web page, on which users configure, start, watch and understand runs. `skillopt ui` serves it on this machine."""
