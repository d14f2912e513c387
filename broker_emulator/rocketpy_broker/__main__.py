"""`python -m rocketpy_broker` is the `rocketpy` command. Holds no state."""

from rocketpy_broker.cli.main import main

if __name__ == "__main__":
    main()
