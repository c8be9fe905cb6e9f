"""What every room agrees on: structs, closed enums and ports. Stdlib and msgspec only; nothing here acts."""
