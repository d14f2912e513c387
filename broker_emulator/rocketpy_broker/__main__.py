"""The `rocketpy` command as `python -m rocketpy_broker`."""

from rocketpy_broker.cli.main import main

if __name__ == "__main__":
    main()
