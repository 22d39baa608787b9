"""`python -m cmbs` is `cmbs`."""

from cmbs.cli import main

if __name__ == "__main__":
    main()
