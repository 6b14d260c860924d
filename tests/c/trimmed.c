/* A library that test_os.c loads and trims: bytes from its file, and addresses that the loader writes. */
#ifndef COUNT
#define COUNT (1 << 16)
#endif
enum { SIZE = 1 << 20 };

__attribute__((visibility("default"))) const char trimmed_text[SIZE] = {[0 ... SIZE - 1] = 'a'};
__attribute__((visibility("default")))
const char *const trimmed_table[COUNT] = {[0 ... COUNT - 1] = trimmed_text};
