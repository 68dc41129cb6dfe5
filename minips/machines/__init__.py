"""Machines and networks: values that simulation and prediction share."""
