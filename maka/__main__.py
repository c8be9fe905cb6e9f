"""`python -m maka`."""

from maka.cli import main

if __name__ == "__main__":
    main()
