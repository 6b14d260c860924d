/* The parts of os.h that are the same on all systems, in standard C. */
#include "core/os.h"

#include <stdatomic.h>

#include "core/memory.h"

bool os_file_read(const char *path, unsigned char **data, size_t *size) {
    FILE *file = os_file_open(path, "rb");
    if (!file) return false;
    uint64_t length;
    unsigned char *bytes = NULL;
    bool good = os_file_size(file, &length) && length < SIZE_MAX;
    if (good) good = (bytes = core_malloc((size_t)length + 1)) != NULL;
    if (good) good = fread(bytes, 1, (size_t)length + 1, file) == length && !ferror(file);
    fclose(file);
    if (!good) {
        core_free(bytes);
        return false;
    }
    *data = bytes;
    *size = (size_t)length;
    return true;
}

bool os_file_write(const char *path, const os_bytes *pieces, int count) {
    static atomic_uint counter;
    char temporary[OS_PATH_SIZE];
    if (snprintf(temporary, sizeof temporary, "%s.%ld.%u" OS_TEMPORARY, path, os_process_id(),
                 atomic_fetch_add(&counter, 1)) >= (int)sizeof temporary)
        return false;
    FILE *file = os_file_open(temporary, "wb");
    if (!file) return false;
    bool good = true;
    for (int i = 0; i < count && good; i++)
        good = fwrite(pieces[i].data, 1, pieces[i].size, file) == pieces[i].size;
    good = !fclose(file) && good;
    good = good && os_file_rename(temporary, path);
    if (!good) os_file_delete(temporary);
    return good;
}

bool os_file_exists(const char *path) {
    FILE *file = os_file_open(path, "rb");
    if (file) fclose(file);
    return file != NULL;
}

void os_folders_make(const char *path) {
    char part[OS_PATH_SIZE];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) return;
    for (char *end = part; (end = strpbrk(end + 1, OS_SEPARATORS));) {
        char separator = *end;
        *end = 0;
        os_folder_make(part);
        *end = separator;
    }
    os_folder_make(part);
}
