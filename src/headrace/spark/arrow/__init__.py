"""Record batches to Arrow and back, without a Python object per record."""
