"""`python -m a3s_actors`: the command line."""

from a3s_actors.cli import main

if __name__ == "__main__":
    main()
