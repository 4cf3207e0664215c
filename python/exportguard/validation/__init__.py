"""A model converted, run and compared with eager on every set of inputs, and the tables that tell of it."""
