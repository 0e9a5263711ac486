"""The Helm chart, as files of the installed package: `python -m weft.deploy.helm` prints its folder."""
