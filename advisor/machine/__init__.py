"""Architectures, features per exact target, device profiles, how many clusters fit. Imports only `errors`."""

from advisor.machine.occupancy import ctas_per_sm, max_active_clusters
from advisor.machine.profile import DeviceProfile, Source
from advisor.machine.profile_file import load_profile, profile_for_cc, profile_names, write_profile

__all__ = [
    "DeviceProfile",
    "Source",
    "ctas_per_sm",
    "load_profile",
    "max_active_clusters",
    "profile_for_cc",
    "profile_names",
    "write_profile",
]
