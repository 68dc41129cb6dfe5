"""What a machine and a network are: values that simulation and prediction share."""
