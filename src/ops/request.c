/* Build requests: kernel_build_spec as lines of text, "file|kernel|options|label|origin of the generated
 * source". */
#include "xpu/request.h"

#include <stdlib.h>
#include <string.h>

#include "core/embedded.h"
#include "core/memory.h"
#include "core/status.h"
#include "kernels/bytes.h"
#include "ops/kernel.h"

const char *xpu_request_common(void) {
    static const char name[] = "common.requests";
    const embedded_file *file = embedded_find(name, sizeof name - 1);
    return file ? file->text : NULL;
}

static inline const char *or_nothing(const char *string) { return string ? string : ""; }

static void add_request(text_buffer *t, const kernel_build_spec *build_spec) {
    text_addf(t, "%s|%s|%s|%s|%s", or_nothing(build_spec->file), build_spec->name,
              or_nothing(build_spec->options), build_spec->label, or_nothing(build_spec->written));
}

void record_build_request(int device, const kernel_build_spec *build_spec) {
    if (build_spec->text && !build_spec->written) return;
    text_buffer request = {0};
    add_request(&request, build_spec);
    if (!request.failed) xpu_request_record(device, request.data);
    text_free(&request);
}

static bool read_text(text_buffer *out, const char *written) {
    static const struct {
        const char *family;
        bool (*read)(text_buffer *out, const char *written);
    } readers[] = {{"pointwise ", pointwise_read},
                   {"foreach ", foreach_read},
                   {"reduce ", reduce_read},
                   {"scan ", scan_read}};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        size_t length = strlen(readers[i].family);
        if (!strncmp(written, readers[i].family, length)) return readers[i].read(out, written + length);
    }
    return false;
}

/* Cuts `line` at its bars into the build_spec's fields; the text is written into `written`. */
static bool read_request(char *line, kernel_build_spec *build_spec, text_buffer *written) {
    char *field[5] = {line};
    for (int i = 1; i < 5; i++) {
        field[i] = strchr(field[i - 1], '|');
        if (!field[i]) return false;
        *field[i]++ = 0;
    }
    *build_spec = (kernel_build_spec){.file = *field[0] ? field[0] : NULL,
                                      .name = field[1],
                                      .options = *field[2] ? field[2] : NULL,
                                      .label = field[3]};
    if (*field[4]) {
        if (!read_text(written, field[4])) return false;
        build_spec->text = written->data;
    }
    return *build_spec->name && (build_spec->file || build_spec->text);
}

xpu_status xpu_request_build(int device, const char *request) {
    const xpu_device_properties *properties;
    XPU_REJECT_IF(!request, "request must not be NULL");
    XPU_TRY(xpu_device_get_properties(device, &properties));
    char *line = core_strdup(request);
    if (!line) return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for a build request");
    kernel_build_spec build_spec;
    text_buffer written = {0}, source = {0};
    xpu_kernel *kernel;
    xpu_status status = XPU_SUCCESS;
    if (!read_request(line, &build_spec, &written))
        status = xpu_fail(XPU_ERROR_INVALID_ARGUMENT, "xpu_request_build: malformed request \"%s\"", request);
    else if (written.failed)
        status = xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the source of kernel %s",
                          build_spec.label);
    else if (build_spec.file && !strcmp(build_spec.file, BYTES_FILE)) /* the runtime's, without the prelude */
        status = embedded_source(&source, BYTES_FILE);
    else
        status = kernel_source(&source, properties, &build_spec);
    if (status == XPU_SUCCESS)
        status = xpu_kernel_create(device, source.data, build_spec.options, build_spec.name, build_spec.label,
                                   &kernel);
    text_free(&source);
    text_free(&written);
    core_free(line);
    return status;
}
