"""The daemon in each pod: standard library only, Python 3.8+, started as `python3 -I <this folder>/main.py`."""
