"""`python -m crdt_mor` is `crdt-mor`."""

from crdt_mor.cli.main import app

if __name__ == "__main__":
    app(prog_name="crdt-mor")
