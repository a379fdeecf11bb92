"""The types that every layer speaks: states, claims, commands, profiles, errors."""
