// What other libraries use of libopenxpu_torch: openxpu's Python module, collectives, compiled models'
// operators.
#pragma once

#define OPENXPU_API __attribute__((visibility("default")))
