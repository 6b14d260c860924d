/* tt.extern_elementwise: translates CUDA's libdevice functions to OpenCL C by name. */
#include <string.h>

#include "tile/emit.h"

static const struct {
    const char *name, *formula;
} functions[] = {
#define F(name, formula) {#name, formula},
#include "tile/libdevice.def"
};

/* A file of the operator library is built for one type, float or double. */
static void use_special(emitter *e, const op *o, unsigned file) {
    bool wide = o->results[0].type->element == F64;
    if (e->special && e->special_wide != wide)
        tile_unsupported(e->t, o->at,
                         "special functions of both float and double in one kernel are not supported");
    e->special |= file;
    e->special_wide = wide;
}

/* "__nv_erff" is erf for float: look up the name as is, then without the final f. */
const char *extern_text(emitter *e, op *o, const char *const *args) {
    const attr *symbol = op_attr(o, "symbol");
    if (!symbol || symbol->kind != ATTR_STRING || strncmp(symbol->string, "__nv_", 5))
        tile_unsupported(e->t, o->at, "external function %s is not supported: only CUDA's libdevice is",
                         symbol && symbol->string ? symbol->string : "?");
    const char *name = symbol->string + 5;
    size_t size = strlen(name);
    for (int cut = 0; cut < 2; cut++)
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
            if (strlen(functions[i].name) != size - (size_t)cut ||
                strncmp(functions[i].name, name, size - (size_t)cut))
                continue;
            if (cut && name[size - 1] != 'f') continue;
            const char *formula = functions[i].formula;
            int wanted = 0;
            for (const char *c = formula; *c; c++)
                if (*c == '$' && c[1] >= '0' && c[1] <= '9' && c[1] - '0' >= wanted) wanted = c[1] - '0' + 1;
            if (wanted > o->arg_count)
                tile_error(e->t, o->at, "%s takes %d operands", symbol->string, wanted);
            for (const char *c = strstr(formula, "tile_"); c; c = strstr(c + 1, "tile_"))
                use(e, tile_strndup(e->t, c, strcspn(c, "(")));
            if (strstr(formula, "sf_")) use_special(e, o, SPECIAL_GAMMA);
            if (strstr(formula, "sb_")) use_special(e, o, SPECIAL_BESSEL);
            return fill(e, formula, o->results[0].type, args);
        }
    tile_unsupported(e->t, o->at, "unknown function %s", symbol->string);
}
