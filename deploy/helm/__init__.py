"""The Helm chart as files of the package: `python -m weft.deploy.helm` prints its folder."""
