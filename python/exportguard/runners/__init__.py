"""What runs an ONNX model, one module for each: tensors in, tensors out."""
