/* Why no GPU is listed under Windows Subsystem for Linux (WSL), and where Intel's GPU driver comes from.
 * `root` is prepended to every path: "", or a folder with a test's copies of the files. Nothing is cached;
 * any thread may call. */
#ifndef CL_WSL_H
#define CL_WSL_H

#include <stdbool.h>
#include <stddef.h>

/* What the GPU needs and does not have. A fault hides those after it. */
typedef enum wsl_fault {
    WSL_ABSENT,     /* this is not WSL */
    WSL_VERSION_1,  /* WSL 1 has no GPU */
    WSL_CONTAINER,  /* a container without WSL's device or libraries */
    WSL_NO_DEVICE,  /* /dev/dxg is missing */
    WSL_NO_DXCORE,  /* WSL's libdxcore.so is missing, which Intel's driver opens */
    WSL_NO_HELPER,  /* Windows' driver brings no libwsl_compute_helper.so */
    WSL_NO_ICD,     /* Intel's compute runtime is not installed */
    WSL_NO_LOADER,  /* libOpenCL.so.1 is not installed */
    WSL_NOT_LISTED, /* everything is installed */
} wsl_fault;

/* `vendors` is OCL_ICD_VENDORS, a folder or an .icd file; NULL or empty for /etc/OpenCL/vendors. Reads one
 * small file outside WSL. */
wsl_fault wsl_check(const char *root, const char *vendors, bool has_loader);

/* Writes a sentence that says what is wrong and what to do; "" for WSL_ABSENT. */
void wsl_advice(wsl_fault fault, const char *root, char *text, size_t size);

/* Writes where this distribution, named by its os-release, has Intel's compute runtime: "install …". */
void wsl_runtime_advice(const char *root, char *text, size_t size);

#endif
