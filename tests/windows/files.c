/* os.h's functions for files, memory and the environment on Windows. tests/mingw.sh runs this under Wine, in
 * an empty folder. The status is the number of failures. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/os.h"

static int failures;

static void check(bool good, const char *what) {
    printf("%s: %s\n", good ? "passed" : "FAILED", what);
    failures += !good;
}

static bool holds(const char *path, const char *text) {
    unsigned char *data;
    size_t size;
    if (!os_file_read(path, &data, &size)) return false;
    const bool same = size == strlen(text) && !memcmp(data, text, size);
    core_free(data);
    return same;
}

static bool put(const char *path, const char *text) {
    return os_file_write(path, &(os_bytes){text, strlen(text)}, 1);
}

static bool found;
static void look(const char *name, void *user) { found |= !strcmp(name, user); }

int main(void) {
    static const char folder[] = "mod\xc3\xa8le \xc5\x81", file[] = "mod\xc3\xa8le \xc5\x81/\xe6\xa8\xa1.txt";
    check(os_folder_make(folder) && put(file, "first") && holds(file, "first"),
          "names outside the code page");
    os_folder_list(folder, look, "\xe6\xa8\xa1.txt");
    check(found, "a folder lists them");
    int64_t seconds = 0;
    check(os_file_modified(file, &seconds) && seconds > 1700000000, "time of modification");
    check(os_file_append(file, "!", 1) && holds(file, "first!"), "append");

    FILE *open = os_file_open(file, "rb");
    char text[8] = "";
    check(put(file, "second") && holds(file, "second"), "an open file is replaced");
    check(open && fread(text, 1, 6, open) == 6 && !strcmp(text, "first!"),
          "who has it open reads the old one");
    if (open) fclose(open);
    os_map map = {0};
    check(os_file_map(file, &map) && map.size == 6 && !memcmp(map.data, "second", 6), "a mapping");
    check(put(file, "third") && holds(file, "third"), "a mapped file is replaced");
    check(map.size == 6 && !memcmp(map.data, "second", 6), "who maps it keeps the old one");
    os_file_unmap(&map);

    char path[OS_PATH_SIZE] = "";
    for (int i = 0; i < 8; i++) {
        strcat(path, i ? "/" : "");
        for (int c = 0; c < 60; c++) strcat(path, "x");
    }
    os_folders_make(path);
    strcat(path, "/file");
    check(put(path, "far") && holds(path, "far"), "a path of 480 characters");
    check(os_file_delete(path) && !os_file_exists(path) && os_file_delete(file), "delete");
    check(!put("no such folder/file", "x") && !os_file_exists("no such folder/file"),
          "a folder that is missing");
    check(!os_file_exists("\xff\xfe"), "a name that is not UTF-8");

    _wputenv(L"OPENXPU_TEST_PATH=\u0141\u6a21");
    const char *value = os_environment("OPENXPU_TEST_PATH");
    check(value && !strcmp(value, "\xc5\x81\xe6\xa8\xa1"), "a variable outside the code page");
    check(value == os_environment("OPENXPU_TEST_PATH"), "asked again, the same text");
    check(!os_environment("OPENXPU_NOT_SET"), "a variable that is not set");
    os_environment_default("OPENXPU_TEST_PATH", "other");
    check(!strcmp(os_environment("OPENXPU_TEST_PATH"), value), "a default changes nothing");

    void *memory = os_aligned_alloc(64, 100);
    check(memory && (uintptr_t)memory % 64 == 0, "aligned memory");
    os_aligned_free(memory);
    check(!os_aligned_alloc(64, SIZE_MAX - 1) && !os_aligned_alloc(64, SIZE_MAX / 2), "sizes that overflow");
    check(os_library_of((const void *)(uintptr_t)main, path) && strstr(path, "files.exe"),
          "the program's own path");
    os_memory machine;
    check(os_memory_read("", &machine) && machine.total >= machine.available, "memory of the machine");
    return failures;
}
