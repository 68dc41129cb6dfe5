"""Descriptions of machines and networks that simulation and prediction share."""
