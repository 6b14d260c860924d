/* Composes the build options of a kernel spec (spec.h). */
#include "ops/spec.h"

#include "core/status.h"

static void add_spec_entry(text_buffer *t, const spec_entry *fact) {
    if (t->size) text_add(t, " ");
    switch (fact->form) {
    case SPEC_ENTRY_INT: text_addf(t, "-D%s=%lld", fact->name, (long long)fact->value.number); break;
    case SPEC_ENTRY_DTYPE:
        text_addf(t, "-D%s=%s", fact->name, xpu_dtype_name((xpu_dtype)fact->value.number));
        break;
    case SPEC_ENTRY_TEXT: text_addf(t, "-D%s%s", fact->name, fact->value.text); break;
    case SPEC_ENTRY_OPTIONS: text_add(t, fact->value.text); break;
    }
}

xpu_status spec_options(const kernel_spec *spec, const char *kernel, text_buffer *options) {
    XPU_REJECT_IF(
        spec->refused.bits,
        "internal error: kernel %s: option %s is %lld, which doesn't fit into its %d bits of the kernel key",
        kernel, spec->refused.name, (long long)spec->refused.value, spec->refused.bits);
    for (int i = 0; i < spec->count; i++) add_spec_entry(options, &spec->fact[i]);
    if (options->failed)
        return xpu_fail(XPU_ERROR_OUT_OF_HOST_MEMORY, "out of host memory for the options of kernel %s",
                        kernel);
    return XPU_SUCCESS;
}
