// Symbols between libraries.
#pragma once

// Of libopenxpu_torch, for openxpu's Python module, collectives, and the operators of compiled models.
#if !defined(_WIN32)
#define OPENXPU_API __attribute__((visibility("default")))
#elif defined(bridge_EXPORTS) // while it is built
#define OPENXPU_API __declspec(dllexport)
#else
#define OPENXPU_API __declspec(dllimport)
#endif

// Declares a function that some builds of PyTorch lack: its address is null then. Those for Windows have all.
#if defined(_WIN32)
#define OPENXPU_OPTIONAL __declspec(dllimport)
#else
#define OPENXPU_OPTIONAL __attribute__((weak))
#endif
