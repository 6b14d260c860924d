// Symbols of libopenxpu_torch that other libraries use: openxpu's Python module, collectives, the operators
// of compiled models.
#pragma once

#define OPENXPU_API __attribute__((visibility("default")))
