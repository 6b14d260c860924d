"""Adds numbers on the first OpenCL GPU through ctypes: what the simulator's tests run in many processes, without
PyTorch, which takes seconds to import."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_ulong, c_void_p

SOURCE = b"kernel void add(global int *x) { x[get_global_id(0)] += (int)get_global_id(0); }"
GPU = 4
READ_WRITE, COPY_HOST_POINTER = 1, 32


def add(count: int = 100, source: bytes = SOURCE) -> tuple[str, int]:
    """Return the device's name, and the sum of twice the numbers below ``count``, or what ``source`` computes."""
    cl = ctypes.CDLL("libOpenCL.so.1")
    for name in ("clCreateContext", "clCreateCommandQueueWithProperties", "clCreateProgramWithSource"):
        getattr(cl, name).restype = c_void_p
    for name in ("clCreateKernel", "clCreateBuffer"):
        getattr(cl, name).restype = c_void_p
    status = c_int()

    def checked(code: int) -> None:
        if code:
            raise RuntimeError(f"OpenCL error {code}")

    def made(handle: int) -> c_void_p:
        checked(status.value)
        return c_void_p(handle)

    platform, device = c_void_p(), c_void_p()
    device_name = ctypes.create_string_buffer(256)
    checked(cl.clGetPlatformIDs(1, byref(platform), None))
    checked(cl.clGetDeviceIDs(platform, c_ulong(GPU), 1, byref(device), None))
    checked(cl.clGetDeviceInfo(device, 0x102B, c_size_t(256), device_name, None))
    context = made(cl.clCreateContext(None, 1, byref(device), None, None, byref(status)))
    queue = made(cl.clCreateCommandQueueWithProperties(context, device, None, byref(status)))
    text = c_char_p(source)
    program = made(cl.clCreateProgramWithSource(context, 1, byref(text), None, byref(status)))
    checked(cl.clBuildProgram(program, 0, None, None, None, None))
    kernel = made(cl.clCreateKernel(program, b"add", byref(status)))
    numbers = (c_int * count)(*range(count))
    flags = c_ulong(READ_WRITE | COPY_HOST_POINTER)
    buffer = made(cl.clCreateBuffer(context, flags, c_size_t(4 * count), numbers, byref(status)))
    checked(cl.clSetKernelArg(kernel, 0, c_size_t(8), byref(buffer)))
    size = c_size_t(count)
    checked(cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, byref(size), None, 0, None, None))
    checked(
        cl.clEnqueueReadBuffer(queue, buffer, 1, c_size_t(0), c_size_t(4 * count), numbers, 0, None, None)
    )
    return device_name.value.decode(), sum(numbers)


if __name__ == "__main__":
    print(*add())
