// Exported and optional symbols.
#pragma once

// Exports a symbol of libopenxpu_torch to openxpu's Python module, collectives, and the operators of compiled
// models.
#if !defined(_WIN32)
#define OPENXPU_API __attribute__((visibility("default")))
#elif defined(bridge_EXPORTS) // while it is built
#define OPENXPU_API __declspec(dllexport)
#else
#define OPENXPU_API __declspec(dllimport)
#endif

// Declares a function that some builds of PyTorch lack; its address is then null. Builds for Windows have
// them all.
#if defined(_WIN32)
#define OPENXPU_OPTIONAL __declspec(dllimport)
#else
#define OPENXPU_OPTIONAL __attribute__((weak))
#endif
