/* What is said about a missing GPU, for copies of the files of WSL, of containers and of other machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cl/wsl.h"
#include "core/os.h"

static char root[64];

static void write_file(const char *name, const char *text) {
    char path[256];
    const os_bytes all = {text, strlen(text)};
    snprintf(path, sizeof path, "%s%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    os_folders_make(path);
    *slash = '/';
    assert_true(os_file_write(path, &all, 1));
}

#define KERNEL "/proc/sys/kernel/osrelease"
#define DEVICE "/dev/dxg"
#define DXCORE "/usr/lib/wsl/lib/libdxcore.so"
#define HELPER "/usr/lib/wsl/drivers/iigd_dch.inf_amd64_1f/libwsl_compute_helper.so"
#define VENDORS "/etc/OpenCL/vendors"
#define DRIVER "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so\n"

/* A healthy machine with this kernel, without some of its files. */
static void make_wsl(const char *kernel, const char *const *without) {
    static const char *const files[][2] = {
        {DEVICE, ""},
        {DXCORE, ""},
        {HELPER, ""},
        {"/usr/lib/wsl/drivers/another.inf_amd64_2/lib.so", ""},
        {VENDORS "/intel.icd", DRIVER},
        {VENDORS "/intel64.icd", "/opt/intel/lib/libintelocl.so\n"}, /* for the CPU */
        {VENDORS "/README", "libigdrcl.so"},
    };
    snprintf(root, sizeof root, "/tmp/test_wsl.XXXXXX");
    assert_non_null(mkdtemp(root));
    if (kernel) write_file(KERNEL, kernel);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bool made = true;
        for (int k = 0; without && without[k]; k++) made &= strcmp(files[i][0], without[k]) != 0;
        if (made) write_file(files[i][0], files[i][1]);
    }
}

static void remove_wsl(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

#define WSL2 "6.6.87.2-microsoft-standard-WSL2\n"

static void faults(void **state) {
    static const struct {
        const char *kernel, *without[5];
        wsl_fault fault;
        const char *said, *to_do;
    } cases[] = {
        {WSL2, {0}, WSL_NOT_LISTED, "lists no GPU", "github.com/intel/compute-runtime/releases"},
        {"4.19.128-microsoft-standard\n", {0}, WSL_NOT_LISTED, "", ""},
        {"5.15.90.1-WSL2-microsoft\n", {0}, WSL_NOT_LISTED, "", ""},
        {"4.4.0-19041-Microsoft\n", {0}, WSL_VERSION_1, "WSL 1", "wsl --set-version"},
        {WSL2, {DEVICE}, WSL_NO_DEVICE, "/dev/dxg", "wsl --update"},
        {WSL2, {DXCORE}, WSL_NO_DXCORE, "/usr/lib/wsl/lib/libdxcore.so", "wsl --update"},
        {WSL2, {HELPER}, WSL_NO_HELPER, "libwsl_compute_helper.so", "Intel's current graphics driver"},
        {WSL2, {VENDORS "/intel.icd"}, WSL_NO_ICD, "OpenCL driver", "install Intel's compute runtime"},
        {WSL2, {DEVICE, DXCORE, HELPER, VENDORS "/intel.icd"}, WSL_NO_DEVICE, "", ""},
        {WSL2, {HELPER, VENDORS "/intel.icd"}, WSL_NO_HELPER, "", ""},
        {"6.12.57+deb13-amd64\n", {DEVICE}, WSL_ABSENT, "", ""},
        {"5.15.0-1051-azure\n", {0}, WSL_ABSENT, "", ""},
        {"", {0}, WSL_ABSENT, "", ""},
        {NULL, {0}, WSL_ABSENT, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        make_wsl(cases[i].kernel, cases[i].without);
        const wsl_fault fault = wsl_check(root, NULL, true);
        wsl_advice(fault, root, text, sizeof text);
        if (fault != cases[i].fault || !strstr(text, cases[i].said) || !strstr(text, cases[i].to_do))
            fail_msg("case %d: fault %d: %s", (int)i, fault, text);
        assert_int_equal(!*text, fault == WSL_ABSENT);
        if (*text) { /* one sentence, whole */
            assert_int_equal(text[strlen(text) - 1], '.');
            assert_null(strstr(text, ". "));
        }
        remove_wsl();
    }
}

static void loader(void **state) {
    char text[512];
    make_wsl(WSL2, NULL);
    assert_int_equal(wsl_check(root, NULL, false), WSL_NO_LOADER);
    wsl_advice(WSL_NO_LOADER, root, text, sizeof text);
    assert_non_null(strstr(text, "ocl-icd-libopencl1"));
    remove_wsl();
}

static void containers(void **state) {
    static const char *const none[] = {DEVICE, DXCORE, HELPER, NULL};
    char text[512];
    make_wsl(WSL2, none);
    write_file("/.dockerenv", "");
    assert_int_equal(wsl_check(root, NULL, true), WSL_CONTAINER);
    wsl_advice(WSL_CONTAINER, root, text, sizeof text);
    assert_non_null(strstr(text, "--device /dev/dxg"));
    write_file("/run/WSL/8_interop", ""); /* a distribution made from a container */
    assert_int_equal(wsl_check(root, NULL, true), WSL_NO_DEVICE);
    remove_wsl();
    make_wsl(WSL2, none + 1);
    write_file("/run/.containerenv", "");
    assert_int_equal(wsl_check(root, NULL, true), WSL_CONTAINER);
    remove_wsl();
}

static void vendors(void **state) {
    static const char *const none[] = {VENDORS "/intel.icd", NULL};
    make_wsl(WSL2, none);
    write_file("/opt/vendors/any.icd", DRIVER);
    assert_int_equal(wsl_check(root, "", true), WSL_NO_ICD);
    assert_int_equal(wsl_check(root, "/opt/vendors", true), WSL_NOT_LISTED);
    assert_int_equal(wsl_check(root, "/opt/vendors/any.icd", true), WSL_NOT_LISTED);
    assert_int_equal(wsl_check(root, "/opt/vendors/none.icd", true), WSL_NO_ICD);
    assert_int_equal(wsl_check(root, "/dev/null", true), WSL_NO_ICD);
    remove_wsl();
}

static void distributions(void **state) {
    static const struct {
        const char *release, *said;
    } cases[] = {
        {"PRETTY_NAME=\"Ubuntu 24.04 LTS\"\nID_LIKE=debian\nID=ubuntu\nVERSION_ID=\"24.04\"\n",
         ": the package intel-opencl-icd."},
        {"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", ": the package intel-opencl-icd."},
        {"VERSION_ID=\"12\"\nID=debian\n", ": the package intel-opencl-icd."},
        {"VERSION_ID=\"13\"\nID=debian\n", "github.com/intel/compute-runtime/releases (Debian has had no"},
        {"ID=debian\nVERSION_CODENAME=forky", "github.com/intel/compute-runtime/releases (Debian"},
        {"ID=fedora\nVERSION_ID=43\n", ": the package intel-compute-runtime."},
        {"ID=arch", ": the package intel-compute-runtime."},
        {"ID=kali\nID_LIKE=debian\nVERSION_ID=\"2026.1\"\n", ": your distribution's package, or"},
        {"", ": your distribution's package, or"},
        {NULL, ": your distribution's package, or"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const none[] = {VENDORS "/intel.icd", NULL};
        char text[512], short_text[8];
        make_wsl(WSL2, none);
        if (cases[i].release) write_file("/etc/os-release", cases[i].release);
        wsl_runtime_advice(root, text, sizeof text);
        if (!strstr(text, cases[i].said)) fail_msg("%s: %s", cases[i].release, text);
        char all[512];
        wsl_advice(WSL_NO_ICD, root, all, sizeof all);
        assert_non_null(strstr(all, text));
        wsl_advice(WSL_NO_ICD, root, short_text, sizeof short_text);
        assert_int_equal(strlen(short_text), sizeof short_text - 1);
        remove_wsl();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults),  cmocka_unit_test(loader),        cmocka_unit_test(containers),
        cmocka_unit_test(vendors), cmocka_unit_test(distributions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
