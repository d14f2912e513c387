"""The `rocketpy` command as `python -m rocketpy_broker`.

`python -m rocketpy_broker --ephemeral` is short for `rocketpy broker --ephemeral`.
"""

import sys

from rocketpy_broker.cli.main import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["--ephemeral"]:
        sys.argv.insert(1, "broker")
    main()
