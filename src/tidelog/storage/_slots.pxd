"""Attributes of Python objects, read and written where their class has put them: for objects with `__slots__`.

A `Slot` remembers, for one attribute, the class that it last saw and where an instance of it has the attribute. While
the next object is of that class, unchanged, a look-up is a comparison and a load: a fifteenth of `getattr`. For
anything else, an attribute that is not a slot too, it is `getattr` and `setattr`. One `Slot` for each attribute of each
class, or they take turns in forgetting.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <Python.h>
    #include <structmember.h>
    #include <stdint.h>

    typedef struct {
        const char *name;
        PyObject *interned;
        PyTypeObject *type;      /* owned: no other class can come to lie there */
        unsigned int version;    /* of the class, which a change of it changes */
        Py_ssize_t offset;
    } tidelog_slot;

    static inline tidelog_slot tidelog_slot_named(const char *name) {
        tidelog_slot slot = {name, NULL, NULL, 0, 0};
        return slot;
    }

    static inline PyObject **tidelog_slot_place(PyObject *object, tidelog_slot *slot) {
        PyTypeObject *type = Py_TYPE(object);
        if (type != slot->type || type->tp_version_tag != slot->version) return NULL;
        return (PyObject **)((char *)object + slot->offset);
    }

    /* Learns where the class of `object` has the attribute, if that is a slot; -1 with an exception. */
    static int tidelog_slot_learn(PyObject *object, tidelog_slot *slot) {
        PyTypeObject *type = Py_TYPE(object);
        PyObject *descriptor;
        if (!slot->interned && !(slot->interned = PyUnicode_InternFromString(slot->name))) return -1;
        if (type->tp_getattro != PyObject_GenericGetAttr || type->tp_setattro != PyObject_GenericSetAttr) return 0;
        descriptor = PyObject_GetAttr((PyObject *)type, slot->interned);
        if (!descriptor) {
            PyErr_Clear();
            return 0;
        }
        if (Py_TYPE(descriptor) == &PyMemberDescr_Type && type->tp_version_tag) {
            PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
            if (member->type == T_OBJECT_EX && PyType_IsSubtype(type, PyDescr_TYPE(descriptor))) {
                Py_INCREF(type);
                Py_XSETREF(slot->type, type);
                slot->version = type->tp_version_tag;
                slot->offset = member->offset;
            }
        }
        Py_DECREF(descriptor);
        return 0;
    }

    static PyObject *tidelog_load_slowly(PyObject *object, tidelog_slot *slot) {
        if (tidelog_slot_learn(object, slot) < 0) return NULL;
        return PyObject_GetAttr(object, slot->interned);
    }

    static inline PyObject *tidelog_load(PyObject *object, tidelog_slot *slot) {
        PyObject **place = tidelog_slot_place(object, slot);
        if (!place || !*place) return tidelog_load_slowly(object, slot);
        Py_INCREF(*place);
        return *place;
    }

    static inline int64_t tidelog_load_int(PyObject *object, tidelog_slot *slot) {
        PyObject **place = tidelog_slot_place(object, slot);
        PyObject *found;
        int64_t value;
        if (place && *place) return PyLong_AsLongLong(*place);
        found = tidelog_load_slowly(object, slot);
        if (!found) return -1;
        value = PyLong_AsLongLong(found);
        Py_DECREF(found);
        return value;
    }

    static inline int tidelog_is_true(PyObject *object, tidelog_slot *slot) {
        PyObject **place = tidelog_slot_place(object, slot);
        PyObject *found;
        int value;
        if (place && *place == Py_False) return 0;
        if (place && *place == Py_True) return 1;
        found = tidelog_load(object, slot);
        if (!found) return -1;
        value = PyObject_IsTrue(found);
        Py_DECREF(found);
        return value;
    }

    static inline int tidelog_store(PyObject *object, tidelog_slot *slot, PyObject *value) {
        PyObject **place = tidelog_slot_place(object, slot);
        PyObject *before;
        if (!place) {
            if (tidelog_slot_learn(object, slot) < 0) return -1;
            return PyObject_SetAttr(object, slot->interned, value);
        }
        before = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(before);
        return 0;
    }

    static inline int tidelog_store_int(PyObject *object, tidelog_slot *slot, int64_t value) {
        PyObject *boxed = PyLong_FromLongLong(value);
        int status;
        if (!boxed) return -1;
        status = tidelog_store(object, slot, boxed);
        Py_DECREF(boxed);
        return status;
    }
    """
    ctypedef struct Slot "tidelog_slot":
        pass
    # The slot of an attribute; `name` is a literal.
    Slot slot_named "tidelog_slot_named"(const char* name)
    object load "tidelog_load"(object, Slot*)
    int64_t load_int "tidelog_load_int"(object, Slot*) except? -1
    # Whether an attribute is true, as `if` would have it.
    bint is_true "tidelog_is_true"(object, Slot*) except -1
    int store "tidelog_store"(object, Slot*, object) except -1
    int store_int "tidelog_store_int"(object, Slot*, int64_t) except -1
