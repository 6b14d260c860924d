/* The products. Device ids and IP versions: devices_base.inl and platforms.h of Intel's compute runtime;
 * sizes: Intel's product pages. */
#include <string.h>

#include "sim.h"

#define GiB (1ull << 30)

const struct sim_product sim_products[] = {
    /* name, marketing name, device id, revision, IP version, topology, local KiB, video memory, large pages,
     * address bits, register bytes, instruction set */
    {"bmg", "Arc B580", 0xE20B, 0, {20, 1, 4}, 5, 4, 8, 8, 128, 12 * GiB, false, 48, 64, SIM_IGA_XE2},
    {"bmg-g31", "Arc Pro B70", 0xE223, 0, {20, 2, 0}, 8, 4, 8, 8, 128, 32 * GiB, false, 48, 64, SIM_IGA_XE2},
    {"lnl", "Arc 140V", 0x64A0, 4, {20, 4, 4}, 2, 4, 8, 8, 128, 0, false, 48, 64, SIM_IGA_XE2},
    {"ptl", "Arc B390", 0xB080, 4, {30, 0, 4}, 2, 6, 8, 10, 128, 0, false, 48, 64, SIM_IGA_XE3},
    {"wcl", "Wildcat Lake", 0xFD80, 1, {30, 3, 1}, 1, 2, 8, 10, 128, 0, false, 48, 64, SIM_IGA_XE3},
    {"nvl-s", "Nova Lake S", 0xD740, 4, {30, 4, 4}, 1, 2, 8, 10, 128, 0, false, 48, 64, SIM_IGA_XE3},
    {"pvc", "Max 1550", 0x0BD5, 0x2f, {12, 60, 7}, 8, 8, 8, 8, 128, 48 * GiB, true, 57, 64, SIM_IGA_XE_HPC},
    {"dg2", "Arc A770", 0x56A0, 8, {12, 55, 8}, 8, 4, 16, 8, 128, 16 * GiB, true, 48, 32, SIM_IGA_XE_HPG},
    {"mtl", "Arc Graphics", 0x7D55, 4, {12, 71, 4}, 2, 4, 16, 8, 128, 0, false, 48, 32, SIM_IGA_XE_HPG},
    {"arl-h", "Arc 140T", 0x7D51, 4, {12, 74, 4}, 2, 4, 16, 8, 128, 0, false, 48, 32, SIM_IGA_XE_HPG},
    {"tgllp", "Iris Xe", 0x9A49, 3, {12, 0, 0}, 1, 6, 16, 7, 128, 0, false, 48, 32, SIM_IGA_XE},
    {"adl-p", "Iris Xe", 0x46A6, 0xc, {12, 3, 0}, 1, 6, 16, 7, 128, 0, false, 48, 32, SIM_IGA_XE},
    {0},
};

const struct sim_product *sim_product_find(const char *name) {
    for (const struct sim_product *p = sim_products; p->name; p++)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}
