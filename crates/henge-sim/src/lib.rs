//! A deterministic discrete-event simulator that runs a scenario.
