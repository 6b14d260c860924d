/* Which devices ZE_AFFINITY_MASK, ONEAPI_DEVICE_SELECTOR and OPENXPU_DEVICE select, and how much memory a
 * CPU device has, from fake lists of devices and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cl/capacity.h"
#include "cl/visible.h"

cl_device cl_devices[CL_MAX_DEVICES];
static int device_count;
int cl_count(void) { return device_count; }

/* A letter per device: I an Intel GPU of a driver that ignores the mask, N one of Intel's own driver, V
 * NVIDIA's, A AMD's, F an accelerator, C and P CPUs. The number after it is its position, which is part of
 * its name. */
static cl_device device_of(char letter, int place) {
    static const cl_api drivers[2];
    cl_device d = {.api = &drivers[0]};
    xpu_device_properties *p = &d.properties;
    p->type = strchr("CP", letter) ? XPU_DEVICE_CPU : letter == 'F' ? XPU_DEVICE_ACCELERATOR : XPU_DEVICE_GPU;
    p->vendor_id = letter == 'V' ? XPU_VENDOR_NVIDIA : letter == 'A' ? 0x1002 : XPU_VENDOR_INTEL;
    snprintf(p->name, sizeof p->name, "%c%d", letter, place);
    snprintf(p->platform_name, sizeof p->platform_name, "%s",
             letter == 'N'   ? "Intel(R) OpenCL Graphics"
             : letter == 'V' ? "NVIDIA CUDA"
             : letter == 'C' ? "Intel(R) OpenCL"
             : letter == 'P' ? "Portable Computing Language"
                             : "rusticl");
    return d;
}

static xpu_status see(const char *devices, const visible_rules *rules, char *text) {
    cl_device found[CL_MAX_DEVICES], seen[CL_MAX_DEVICES];
    const int count = (int)strlen(devices);
    int shown = -1;
    for (int i = 0; i < count; i++) found[i] = device_of(devices[i], i);
    const xpu_status status = visible_devices(rules, found, count, seen, CL_MAX_DEVICES, &shown);
    *text = 0;
    for (int i = 0; i < shown; i++) strcat(strcat(text, i ? " " : ""), seen[i].properties.name);
    return status;
}

typedef struct example {
    const char *devices, *mask, *selector, *choice, *seen; /* seen: NULL for an error */
} example;

static const example examples[] = {
    /* no variable: GPUs and accelerators, then one CPU */
    {"CIV", NULL, NULL, NULL, "I1 V2 C0"},
    {"CPI", "", "", "", "I2 C0"},
    {"", "0", "*:gpu", "cpu", ""},
    {"CPFA", NULL, NULL, NULL, "F2 A3 C0"},

    /* ZE_AFFINITY_MASK: Intel GPUs in the drivers' order */
    {"CIII", "0", NULL, NULL, "I1 C0"},
    {"CIII", "1", NULL, NULL, "I2 C0"},
    {"CIII", "2,0", NULL, NULL, "I1 I3 C0"},
    {"III", "0,0,1", NULL, NULL, "I0 I1"},
    {"III", " 1 , 2 ", NULL, NULL, "I1 I2"},
    {"III", "3", NULL, NULL, ""},
    {"III", "3,1", NULL, NULL, "I1"},
    {"IVI", "1", NULL, NULL, "V1 I2"}, /* NVIDIA's GPU does not belong to Level Zero */
    {"CV", "7", NULL, NULL, "V1 C0"},
    {"III", "0.0,1", NULL, NULL, "I1"}, /* tiles are not exposed */
    {"III", "-1", NULL, NULL, ""},
    {"III", "x", NULL, NULL, ""},
    {"III", "1x,2", NULL, NULL, "I2"},
    {"III", ",,1,", NULL, NULL, "I1"},
    {"N", "1", NULL, NULL, "N0"}, /* Intel's driver has already removed its first GPU */
    {"NI", "1", NULL, NULL, "N0"},
    {"NI", "0", NULL, NULL, "N0 I1"},
    {"IIIIIIIIIIII", "10,2", NULL, NULL, "I2 I10"},

    /* ONEAPI_DEVICE_SELECTOR: one term */
    {"CIIV", NULL, "opencl:gpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "opencl:cpu", NULL, "C0"},
    {"CIIV", NULL, "opencl:gpu,cpu", NULL, "I1 I2 V3 C0"},
    {"CIIV", NULL, "opencl:*", NULL, "I1 I2 V3 C0"},
    {"CIIV", NULL, "level_zero:gpu", NULL, "I1 I2"},
    {"CIIV", NULL, "level_zero:*", NULL, "I1 I2"},
    {"CIIV", NULL, "level_zero:0", NULL, "I1"},
    {"CIIV", NULL, "level_zero:1", NULL, "I2"},
    {"CIIV", NULL, "level_zero:0,1", NULL, "I1 I2"},
    {"CIIV", NULL, "level_zero:1,0", NULL, "I1 I2"},
    {"CIIV", NULL, "level_zero:2", NULL, ""},
    {"CIIV", NULL, "level_zero:cpu", NULL, ""},
    {"CIIV", NULL, "cuda:*", NULL, "V3"},
    {"CIIV", NULL, "cuda:0", NULL, "V3"},
    {"CIAA", NULL, "hip:1", NULL, "A3"},
    {"CIIV", NULL, "opencl:2", NULL, "V3"}, /* in libxpu's order */
    {"CIIV", NULL, "opencl:3", NULL, "C0"},
    {"CIIV", NULL, "opencl:10", NULL, ""},
    {"CIIV", NULL, "*:gpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "*:cpu", NULL, "C0"},
    {"CIIV", NULL, "*:*", NULL, "I1 I2 V3 C0"},
    {"CIIV", NULL, "*:0", NULL, "I1 V3"}, /* the first of each backend */
    {"CIIV", NULL, "OpenCL:GPU", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "LEVEL_ZERO:0", NULL, "I1"},
    {"CF", NULL, "opencl:fpga", NULL, "F1"},
    {"CF", NULL, "*:acc", NULL, "F1"},
    {"CIIV", NULL, "native_cpu:*", NULL, ""},
    {"NN", "1", "level_zero:1", NULL, "N1"},
    {"III", "1,2", "level_zero:0", NULL, "I1"}, /* indices count what the mask leaves */
    {"CIIV", NULL, "level_zero:0.*", NULL, ""},
    {"CIIV", NULL, "level_zero:*,*.*", NULL, "I1 I2"},
    {"CIIV", NULL, "*:*.*.*", NULL, ""},

    /* several terms, also discarding ones */
    {"CIIV", NULL, "opencl:cpu;level_zero:1", NULL, "I2 C0"},
    {"CIIV", NULL, "opencl:gpu;level_zero:gpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "!opencl:cpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "!*:cpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "!*:gpu", NULL, "C0"},
    {"CIIV", NULL, "opencl:*;!opencl:0", NULL, "I2 V3 C0"},
    {"CIIV", NULL, "opencl:*;!*:cpu", NULL, "I1 I2 V3"},
    {"CIIV", NULL, "!opencl:*", NULL, "I1 I2 V3"}, /* which are also in other backends */
    {"CIIV", NULL, "!opencl:*;!cuda:*", NULL, "I1 I2"},
    {"CIIV", NULL, "level_zero:*;!level_zero:0", NULL, "I2"},
    {"CIIV", NULL, "*:gpu;!*:0", NULL, "I2 V3"}, /* V3 is cuda:0, but opencl:2 as well */
    {"CIIV", NULL, "level_zero:0;!level_zero:0", NULL, ""},
    {"CIIV", NULL, "level_zero:0;", NULL, "I1"},

    /* with OPENXPU_DEVICE, which selects among the remaining devices */
    {"CIIV", NULL, "opencl:gpu", "cpu", ""},
    {"CIIV", NULL, "level_zero:1", "gpu,gpu", "I2 I2"},
    {"CPI", NULL, "opencl:cpu", "cpu,cpu", "C0 C0 P1 P1"},
    {"CPI", NULL, "opencl:cpu", NULL, "C0"},
    {"CPI", NULL, NULL, "portable", "P1"},

    /* not a selector */
    {"CI", NULL, "gpu", NULL, NULL},
    {"CI", NULL, "level_zero", NULL, NULL},
    {"CI", NULL, "level_zero:", NULL, NULL},
    {"CI", NULL, ":gpu", NULL, NULL},
    {"CI", NULL, "opencl:gpu,", NULL, NULL},
    {"CI", NULL, "opencl:,gpu", NULL, NULL},
    {"CI", NULL, "vulkan:*", NULL, NULL},
    {"CI", NULL, "opencl:tpu", NULL, NULL},
    {"CI", NULL, "opencl:-1", NULL, NULL},
    {"CI", NULL, "opencl: gpu", NULL, NULL},
    {"CI", NULL, "!opencl:cpu;opencl:gpu", NULL, NULL},
    {"CI", NULL, "!!opencl:cpu", NULL, NULL},
    {"CI", NULL, "level_zero:0.0", NULL, NULL},
    {"CI", NULL, "level_zero:0,0.1", NULL, NULL},
    {"CI", NULL, "level_zero:0.0.1", NULL, NULL},
    {"CI", NULL, "opencl:gpu;cuda", NULL, NULL},
};

static void seen_devices(void **state) {
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        const visible_rules rules = {e->mask, e->selector, e->choice};
        char seen[256];
        const xpu_status status = see(e->devices, &rules, seen);
        const char *mask = e->mask ? e->mask : "-", *selector = e->selector ? e->selector : "-";
        if (!e->seen) {
            if (status != XPU_ERROR_INVALID_ARGUMENT) fail_msg("%s is no error: %s", selector, seen);
            assert_non_null(strstr(xpu_last_error(), "ONEAPI_DEVICE_SELECTOR="));
            assert_non_null(strstr(xpu_last_error(), selector));
        } else if (status != XPU_SUCCESS || strcmp(seen, e->seen)) {
            fail_msg("%s, mask %s, selector %s: %s, not %s", e->devices, mask, selector,
                     status == XPU_SUCCESS ? seen : xpu_last_error(), e->seen);
        }
    }
}

/* A driver that is listed twice, and more devices than there is room for. */
static void twins_and_room(void **state) {
    static const cl_api direct, loaded;
    cl_device found[CL_MAX_DEVICES], seen[CL_MAX_DEVICES];
    const visible_rules none = {0}, many = {.choice = "c,c,c"};
    int count;
    for (int i = 0; i < 4; i++) {
        found[i] = device_of('C', i % 2);
        found[i].api = i < 2 ? &direct : &loaded;
    }
    assert_int_equal(visible_devices(&many, found, 4, seen, CL_MAX_DEVICES, &count), XPU_SUCCESS);
    assert_int_equal(count, 6); /* two devices, three times each */
    for (int i = 0; i < CL_MAX_DEVICES; i++) found[i] = device_of('I', i);
    assert_int_equal(visible_devices(&none, found, CL_MAX_DEVICES, seen, 5, &count), XPU_SUCCESS);
    assert_int_equal(count, 5);
}

/* --- memory --- */

#define GIB ((uint64_t)1 << 30)

static void shares_of_memory(void **state) {
    static const struct {
        const char *setting;
        uint64_t bytes; /* of 64 GiB; 0: an error */
    } settings[] = {
        {NULL, 48 * GIB},
        {"", 48 * GIB},
        {"0.5", 32 * GIB},
        {"1", 64 * GIB},
        {".25", 16 * GIB},
        {"50%", 32 * GIB},
        {"100%", 64 * GIB},
        {"12GiB", 12 * GIB},
        {"12G", 12 * GIB},
        {"12gb", 12 * GIB},
        {"2048M", 2 * GIB},
        {"1.5g", 3 * GIB / 2},
        {"1024k", 1 << 20},
        {"1T", 64 * GIB},
        {"2147483648", 2 * GIB},
        {"8589934592B", 8 * GIB},
        {"1e9", 1000000000},
        {"65G", 64 * GIB},
        {"0", 0},
        {"-1", 0},
        {"101%", 0},
        {"nan", 0},
        {"all", 0},
        {"12 G", 0},
        {"12Q", 0},
        {"12Gx", 0},
        {"0%", 0},
        {"-3G", 0},
        {"0.5x", 0},
        {"%", 0},
        {"G", 0},
    };
    const os_memory machine = {.total = 64 * GIB, .available = 60 * GIB, .limit = OS_UNLIMITED};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *setting = settings[i].setting;
        const xpu_status status = capacity_of_host(&machine, setting, &bytes);
        if (settings[i].bytes ? status != XPU_SUCCESS || bytes != settings[i].bytes
                              : status != XPU_ERROR_INVALID_ARGUMENT)
            fail_msg("%s: %llu", setting ? setting : "-", (unsigned long long)bytes);
    }
    const os_memory group = {
        .total = 64 * GIB, .available = 60 * GIB, .limit = 8 * GIB, .limit_left = 5 * GIB};
    assert_int_equal(capacity_of_host(&group, NULL, &bytes), XPU_SUCCESS);
    assert_true(bytes == 6 * GIB);
    assert_int_equal(capacity_of_host(&group, "20G", &bytes), XPU_SUCCESS);
    assert_true(bytes == 8 * GIB);
}

static void memory_that_is_left(void **state) {
    const os_memory cases[] = {
        {.available = 9 * GIB, .limit_left = OS_UNLIMITED},
        {.available = 9 * GIB, .limit_left = 4 * GIB},
        {.available = 3 * GIB, .limit_left = 4 * GIB},
        {.available = 3 * GIB, .limit_left = 0},
    };
    const uint64_t left[] = {9 * GIB, 4 * GIB, 3 * GIB, 0};
    for (int i = 0; i < 4; i++) assert_true(capacity_left(&cases[i]) == left[i]);
}

/* CPU devices share the host's memory; others have their own. */
static void hosts_divide(void **state) {
    os_memory machine;
    assert_true(os_memory_read("", &machine));
    device_count = 3;
    for (int i = 0; i < 3; i++)
        cl_devices[i].properties = (xpu_device_properties){
            .built_for_cpu = i > 0, .total_memory = 2 * machine.total, .max_allocation = 2 * machine.total};
    assert_int_equal(cl_divide_host_memory(), XPU_SUCCESS);
    assert_true(cl_devices[0].properties.total_memory == 2 * machine.total);
    const uint64_t one = cl_devices[1].properties.total_memory;
    assert_true(one == cl_devices[2].properties.total_memory);
    assert_true(one > 0 && 2 * one <= machine.total);
    assert_true(cl_devices[1].properties.max_allocation == one);
    assert_true(cl_memory_left(1, false) <= machine.total);
    bool adds_swap = false; /* other processes take and free memory between two calls */
    for (int i = 0; i < 100 && !adds_swap; i++)
        adds_swap = cl_memory_left(1, false) <= cl_memory_left(1, true);
    assert_true(adds_swap);
    assert_true(cl_memory_left(0, false) == OS_UNLIMITED); /* a GPU without an address */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seen_devices),     cmocka_unit_test(twins_and_room),
        cmocka_unit_test(shares_of_memory), cmocka_unit_test(memory_that_is_left),
        cmocka_unit_test(hosts_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
